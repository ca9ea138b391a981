-- TPC-H Q14, promotion effect: the share of one month's revenue that came from promotional parts, in percent.
select
    100.00 * sum(case when p_type like 'PROMO%' then l_extendedprice * (1 - l_discount) else 0 end)
        / sum(l_extendedprice * (1 - l_discount)) as promo_revenue
from lineitem
join part on l_partkey = p_partkey
where l_shipdate >= date '1995-09-01'
    and l_shipdate < date '1995-09-01' + interval '1' month
